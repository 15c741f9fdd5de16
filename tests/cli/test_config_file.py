"""`config.toml` on the disk: a link stays one, nothing is written over what others wrote, nothing is half done."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from meshnode.errors import ConfigError
from meshnode.limits import CONFIG_BYTES
from meshnode.node import configfile, private
from meshnode.node.config import Config
from meshnode.node.configfile import change_settings, load_config, replace_settings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text("# mine\nport = 1\n")
    return path


def alone(path: Path) -> bool:
    """Whether no draft lies beside the file."""
    return list(path.parent.iterdir()) == [path]


def test_a_snapshot_is_kept_as_it_was_written_and_its_mode_is_private(path: Path) -> None:
    path.chmod(0o644)
    done = replace_settings(path, "# new\nname = 'a'  # b")
    assert (done.before, done.after.config) == (Config(port=1), Config(name="a"))
    assert path.read_text() == "# new\nname = 'a'  # b"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert alone(path)


def test_a_snapshot_mends_a_file_that_cannot_be_used(path: Path) -> None:
    path.write_text("port = 7\nprot = 1\n")
    with pytest.raises(ConfigError, match="line 2"):
        change_settings(path, {"port": 2})
    assert replace_settings(path, "").before == Config(port=7)
    path.write_bytes(b"port = ")
    assert replace_settings(path, "port = 2").before == Config()


def test_a_bad_snapshot_changes_nothing(path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1: port"):
        replace_settings(path, "port = -1")
    assert path.read_text() == "# mine\nport = 1\n"


def test_a_link_stays_one(path: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    link = tmp_path / "home" / "config.toml"
    link.symlink_to(Path("..") / "config.toml")
    change_settings(link, {"port": 2})
    assert link.is_symlink()
    assert path.read_text() == "# mine\nport = 2\n"
    path.unlink()
    change_settings(link, {"port": 3})
    assert (link.is_symlink(), load_config(path)) == (True, Config(port=3))


def test_what_an_editor_saves_meanwhile_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, saves = private.write_private, ["# mine\nport = 1\nname = 'saved'\n"]

    def saved_meanwhile(*arguments: object, **named: object) -> None:
        if saves:
            path.write_text(saves.pop())
        write(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(configfile, "write_private", saved_meanwhile)
    done = change_settings(path, {"port": 2})
    assert done.after.config == load_config(path) == Config(port=2, name="saved")
    saves[:] = [f"name = '{number}'\n" for number in range(configfile.ATTEMPTS)]
    with pytest.raises(ConfigError, match="another program"):
        change_settings(path, {"port": 3})
    assert load_config(path) == Config(name="0")
    assert alone(path)


def test_a_full_disk_leaves_everything_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(private.os, "fsync", full)
    with pytest.raises(ConfigError, match=r"cannot write .*config\.toml: .*No space left"):
        change_settings(path, {"port": 2})
    assert path.read_text() == "# mine\nport = 1\n"
    assert alone(path)


def test_a_file_that_its_owner_made_read_only_stays(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(ConfigError, match=r"read-only.*chmod u\+w"):
        change_settings(path, {"port": 2})
    assert change_settings(path, {"port": 1}).after.config == Config(port=1)  # it says so
    assert path.read_text() == "# mine\nport = 1\n"


def test_a_file_of_any_size_is_not_read(path: Path) -> None:
    path.write_bytes(b"#" * (CONFIG_BYTES + 1))
    with pytest.raises(ConfigError, match="no configuration"):
        load_config(path)
    with pytest.raises(ConfigError, match="would have more than"):
        replace_settings(path.with_name("other"), "#" * (CONFIG_BYTES + 1))


def test_the_first_change_makes_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    done = change_settings(path, {"port": 7})
    assert (done.before, load_config(path)) == (Config(), Config(port=7))
    assert "\nport = 7\n" in path.read_text()
    assert "# max_links = 64\n" in path.read_text()
