"""The node's home: keys that stay private, settings that say what is wrong with them, and the lock."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.errors import BusyError, ConfigError, IdentityError, NotFoundError, UsageError
from meshnode.node.config import Config, with_overrides
from meshnode.node.configfile import load_config
from meshnode.node.configtext import config_text, parse_config
from meshnode.node.home import Home
from meshnode.node.homepath import default_home
from meshnode.node.lock import holder_of, lock_or, try_lock

SEED = bytes(range(32))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "node")
    home.prepare()
    return home


async def nothing() -> None:
    return None


def test_keys_and_folder_are_the_owners_alone(home: Home) -> None:
    key = home.write_site_key(SEED)
    assert home.site_key() == key
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.site_key_path.stat().st_mode) == 0o600
    assert SEED.hex() not in repr(key)


def test_an_unfinished_foundings_key_is_kept(home: Home) -> None:
    first = home.write_site_key(SEED)
    assert home.write_site_key(bytes(32)) == first


def test_a_key_that_others_can_read_is_refused(home: Home) -> None:
    home.write_site_key(SEED)
    home.site_key_path.chmod(0o640)
    with pytest.raises(IdentityError, match="chmod 600"):
        home.site_key()


def test_a_recovery_key_that_others_can_read_is_refused_as_well(home: Home) -> None:
    home.write_site_key(SEED)
    home.write_recovery_key(bytes(32))
    home.recovery_key_path.chmod(0o604)
    with pytest.raises(IdentityError, match=r"recovery\.key can be read by others: `chmod 600"):
        home.site_key()


def test_a_folder_that_others_can_enter_is_refused(home: Home) -> None:
    home.write_site_key(SEED)
    home.path.chmod(0o750)
    with pytest.raises(IdentityError, match="chmod 700"):
        home.site_key()
    with pytest.raises(IdentityError, match="chmod 700"):
        home.prepare()


@pytest.mark.parametrize("settings", [None, "port = 4747\n"])
def test_an_open_folder_of_no_other_use_is_closed(tmp_path: Path, settings: str | None) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    if settings is not None:
        (folder / "config.toml").write_text(settings)
    Home(folder).prepare()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\xa1\x01\x01", bytes(5000)])
def test_a_damaged_key_file_is_named_and_its_content_is_not(home: Home, damage: bytes) -> None:
    home.write_site_key(SEED)
    home.site_key_path.write_bytes(damage)
    with pytest.raises(IdentityError, match=r"site\.key"):
        home.site_key()


def test_a_missing_key_file_is_named(home: Home) -> None:
    with pytest.raises(IdentityError, match="missing"):
        home.site_key()


def test_a_home_is_founded_once_its_incarnation_is_there(home: Home) -> None:
    with pytest.raises(NotFoundError, match="meshnode init"):
        Home.load(home.path)
    home.write_incarnation(bytes(16))
    assert Home.load(home.path).incarnation() == bytes(16)
    with pytest.raises(UsageError, match="already"):
        home.refuse_founded()
    home.incarnation_path.write_text("zz")
    with pytest.raises(IdentityError, match="incarnation"):
        home.incarnation()


def test_the_database_can_live_elsewhere(tmp_path: Path) -> None:
    assert Home(tmp_path, Config()).database_path == tmp_path / "meshnode.db"
    assert Home(tmp_path, Config(database="../app.db")).database_path == tmp_path / ".." / "app.db"
    assert Home(tmp_path, Config(database="/x/app.db")).database_path == Path("/x/app.db")


def test_the_default_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MESHNODE_HOME", str(tmp_path))
    assert default_home() == tmp_path
    monkeypatch.setenv("MESHNODE_HOME", "")
    assert default_home().is_absolute()


def test_settings_are_read_and_written(home: Home) -> None:
    config = Config(name='a "b" \\ ü', port=4747, peers=["[::1]:4747"], mdns_enabled=False)
    home.write_config(config)
    assert Home(home.path).config == config
    home.write_config(Config(name="other"))
    assert Home(home.path).config == config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "did you mean 'port'"),
        ("zzz = 1", "the settings are name, port"),
        ("port = 65536", "port"),
        ("port = '1'", "port"),
        ("peers = 'x'", "peers"),
        ("peers = [1]", "peers"),
        ("name = '" + "x" * 129 + "'", "128 bytes"),
        ('name = "a\\u0007"', "cannot be shown"),
        ("port = ", "not TOML"),
        ("listen = '256.0.0.1'", "listen is an IP address"),
        ("peers = ['nonsense']", "nonsense"),
        ("a = " + "[" * 5000, "not TOML"),
        ("scope = ['notes']", "scope"),
        ("replicate_raw_ingress = 1", "replicate_raw_ingress"),
        ("replay_budget_days = 91", "replay_budget_days"),
        ("replay_budget_days = -1", "replay_budget_days"),
        ("announce_on_untrusted_wifi = 'no'", "announce_on_untrusted_wifi"),
        ("trusted_ssids = 'Home'", "trusted_ssids"),
        ("trusted_ssids = ['']", "has 1 to 32 bytes, unlike ''"),
        (f"trusted_ssids = ['{'é' * 17}']", "has 1 to 32 bytes"),
        (f"trusted_ssids = {['x'] * 65}", "at most 64 names, not 65"),
    ],
)
def test_a_bad_setting_is_one_clear_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_config(text, "config.toml")
    assert str(caught.value).startswith("config.toml: ")
    assert "\n" not in str(caught.value)


def test_a_settings_file_that_is_no_text_is_named(home: Home) -> None:
    home.config_path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"config\.toml"):
        Home(home.path)


def test_the_command_line_stands_before_the_file() -> None:
    with pytest.raises(ConfigError, match="port is a number"):
        with_overrides(Config(), port=65536)
    assert with_overrides(Config(port=1, name="a"), port=2, name=None) == Config(port=2, name="a")


@given(st.text(alphabet=st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), max_size=20))
def test_any_name_survives_the_file(name: str) -> None:
    config = Config(name=name, database=name)
    assert parse_config(config_text(config)) == config


@pytest.mark.parametrize(
    ("setting", "value", "line"),
    [
        ("scope", ["main.notes", "!main.x"], 'scope = ["main.notes", "!main.x"]'),
        ("scope", [], "scope = []"),
        ("replicate_raw_ingress", True, "replicate_raw_ingress = true"),
        ("replay_budget_days", 30, "replay_budget_days = 30"),
        ("announce_on_untrusted_wifi", False, "announce_on_untrusted_wifi = false"),
        ("trusted_ssids", [' a"b\\\n', "é" * 16], 'trusted_ssids = [" a\\"b\\\\\\U0000000a", "éééééééééééééééé"]'),
    ],
)
def test_a_policy_is_changed_in_the_file_and_nothing_else_is(
    home: Home, setting: str, value: object, line: str
) -> None:
    written = "# mine\nname = 'desk'\n\nscope = ['main.*']  # why\n#replay_budget_days=1\n"
    home.config_path.write_text(written)
    config = home.change_setting(setting, value)
    kept = home.config_path.read_text().splitlines()
    assert any(each.startswith(line) for each in kept)
    assert any(each.endswith("  # why") for each in kept)
    assert [each for each in kept if setting not in each] == [
        each for each in written.splitlines() if setting not in each
    ]
    assert load_config(home.config_path) == config == home.config
    home.change_setting(setting, value)
    assert home.config_path.read_text().splitlines() == kept


def test_a_policy_in_a_home_without_settings_gets_a_file(home: Home) -> None:
    home.change_setting("replay_budget_days", 7)
    assert load_config(home.config_path) == Config(replay_budget_days=7)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("prot", 1, "did you mean 'port'"),
        ("scope", ["notes"], "scope"),
        ("scope", "main.*", "scope"),
        ("replicate_raw_ingress", "yes", "replicate_raw_ingress"),
        ("replay_budget_days", 91, "replay_budget_days"),
        ("replay_budget_days", True, "replay_budget_days"),
        ("trusted_ssids", ["\udcff"], "trusted_ssids: '.udcff' is no text"),
    ],
)
def test_a_policy_that_cannot_be_changes_nothing(home: Home, setting: str, value: object, says: str) -> None:
    home.config_path.write_text("name = 'desk'\n")
    with pytest.raises(ConfigError, match=says):
        home.change_setting(setting, value)
    assert home.config_path.read_text() == "name = 'desk'\n"


def test_a_setting_over_several_lines_is_changed_as_one(home: Home) -> None:
    home.config_path.write_text("scope = [\n  'main.notes',  # why\n]\nport = 1\n")
    home.change_setting("scope", [])
    assert home.config_path.read_text() == "scope = []\nport = 1\n"


async def test_the_lock_names_its_holder(home: Home) -> None:
    lock = try_lock(home.lock_path, "import")
    assert lock is not None
    assert try_lock(home.lock_path, "put") is None
    with pytest.raises(BusyError, match=rf"process {os.getpid()} \(`meshnode import`\) holds the node"):
        await lock_or(home.lock_path, "put", nothing, wait_s=0)
    lock.release()
    assert holder_of(home.lock_path) is None
    with await taken(home):
        pass


async def taken(home: Home):  # type: ignore[no-untyped-def]
    return await lock_or(home.lock_path, "put", nothing, wait_s=0)


async def test_waiting_for_the_lock_finds_a_node_that_starts_meanwhile(home: Home) -> None:
    lock = try_lock(home.lock_path, "up")
    looks = iter([None, None, "the control socket"])

    async def look() -> str | None:
        return next(looks)

    assert await lock_or(home.lock_path, "put", look) == "the control socket"
    assert lock is not None
    lock.release()


async def test_the_lock_of_a_killed_process_is_free(home: Home) -> None:
    code = (
        "import sys, pathlib; from meshnode.node.lock import try_lock; "
        "lock = try_lock(pathlib.Path(sys.argv[1]), 'up'); print(lock is not None, flush=True); sys.stdin.read()"
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(home.lock_path), stdin=pipe, stdout=pipe
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"True\n"
    holder = holder_of(home.lock_path)
    assert holder is not None
    assert (holder.pid, holder.verb) == (process.pid, "up")
    assert try_lock(home.lock_path, "put") is None
    process.kill()
    await process.communicate()
    with await taken(home):
        pass


def test_a_lock_file_full_of_rubbish_is_another_process(home: Home) -> None:
    home.lock_path.write_bytes(b"\xff" * 10_000)
    assert holder_of(home.lock_path) is None
