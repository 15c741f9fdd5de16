"""The document of the control API; the pages of the dashboard, imported once it is opened, and what they show."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

hiddenimports = collect_submodules("meshnode.control.web")
datas = collect_data_files("meshnode.control")
