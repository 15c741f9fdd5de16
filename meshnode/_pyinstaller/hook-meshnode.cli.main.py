"""The verbs, each a module that its name leads to, and what the shells' completion is filled into."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

hiddenimports = collect_submodules("meshnode.cli")
datas = collect_data_files("meshnode.cli")
