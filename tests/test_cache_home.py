import os

from ninfer_jax import cache_home


def test_a_cache_that_cannot_be_written_moves_to_a_private_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_home.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("not a folder")
    folder = cache_home.cache_home({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert folder == tmp_path / f"ninfer-jax-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)  # somebody was here first
    other = cache_home.cache_home({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert other != folder
    assert other.stat().st_mode & 0o777 == 0o700


def test_it_is_the_user_s_own_cache_where_that_can_be_written(tmp_path):
    folder = cache_home.cache_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder == tmp_path / "ninfer-jax"
    assert folder.is_dir()
