"""Version files, device files, memory, on a made-up file system."""

from pathlib import Path

import pytest

from ascend_vl.machine import files


def write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


@pytest.fixture(autouse=True)
def _no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_driver_and_firmware(tmp_path: Path) -> None:
    write(tmp_path, "usr/local/Ascend/driver/version.info", "Version=25.5.1\nascendhal_version=7.35.23\n")
    write(tmp_path, "usr/local/Ascend/firmware/version.info", "Version=7.8.0.2.220\n")
    assert files.driver_version(tmp_path) == "25.5.1"
    assert files.firmware_version(tmp_path) == "7.8.0.2.220"
    assert files.driver_version(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        (
            "usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info",
            "package_name=Ascend-cann-toolkit\nversion=8.2.RC1\ninnerversion=V100R001C22\n",
            "8.2.RC1",
        ),
        ("usr/local/Ascend/cann/version.cfg", "# version: 1.0\ntoolkit_installed_version=[9.1.0:9.1.0]\n", "9.1.0"),
        ("usr/local/Ascend/cann/version.cfg", "nothing here\x00\x01", None),
    ],
)
def test_cann(tmp_path: Path, path: str, text: str, version: str | None) -> None:
    write(tmp_path, path, text)
    assert files.cann_version(tmp_path, "aarch64") == version


def test_device_files(tmp_path: Path) -> None:
    for name in ("davinci10", "davinci2", "davinci_manager", "devmm_svm", "hisi_hdc", "null", "davinciX"):
        write(tmp_path, f"dev/{name}", "")
    assert files.device_nodes(tmp_path) == ("davinci2", "davinci10", "hisi_hdc", "devmm_svm", "davinci_manager")
    assert files.device_nodes(tmp_path / "elsewhere") == ()


def test_container(tmp_path: Path) -> None:
    assert files.container(tmp_path) is None
    write(tmp_path, "proc/1/cgroup", "0::/kubepods/burstable/pod1\n")
    assert files.container(tmp_path) == "docker"
    write(tmp_path, "run/.containerenv", "")
    assert files.container(tmp_path) == "podman"


def test_memory_and_the_limit_of_a_container(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n")
    assert files.host_memory(tmp_path) == (1000 * 1024, 600 * 1024)
    write(tmp_path, "sys/fs/cgroup/memory.max", "512000\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", "12000\n")
    assert files.host_memory(tmp_path) == (512000, 500000)
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert files.host_memory(tmp_path) == (1000 * 1024, 600 * 1024)
    assert files.host_memory(tmp_path / "elsewhere") == (0, 0)
