"""What a node imports by names that PyInstaller cannot see."""

from PyInstaller.utils.hooks import can_import_module, collect_submodules

from meshnode import _MODULES

hiddenimports = [f"meshnode.{module}" for module in (*_MODULES, "node.views")]  # of the public names
hiddenimports += collect_submodules("zeroconf")  # compiled, and they import each other
hiddenimports += ["email.mime.text", "email.parser", "fractions", "ipaddress"]  # cbor2, compiled, at its first value
hiddenimports += ["dataclasses", "datetime", "decimal", "enum", "uuid"]  # msgspec, compiled
if can_import_module("sqlcipher3.dbapi2"):
    hiddenimports.append("sqlcipher3.dbapi2")  # the extra `encrypted`
