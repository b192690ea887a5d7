"""A vLLM plugin with a fault in it, on a path of its own: loaded by every process of an engine started from here."""

import os
import textwrap

# The attention of one layer gives 1.5 times its result in decode steps; prefill is right.
DECODE_ATTENTION = """
    from vllm.v1.attention.backends import cpu_attn

    def register():
        kind = cpu_attn.CPUAttentionBackendImpl
        if getattr(kind, "planted", False):
            return
        kind.planted = True
        forward = kind.forward

        def wrong(self, layer, query, key, value, kv_cache, attn_metadata, output, *rest, **named):
            result = forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *rest, **named)
            if attn_metadata is not None and attn_metadata.max_query_len == 1 and ".layers.1." in layer.layer_name:
                output.mul_(1.5)
            return result

        kind.forward = wrong
    """

# Pictures are not turned as their EXIF says.
NO_EXIF = """
    def register():
        from ascend_vl import images

        images.ImageOps.exif_transpose = lambda picture, **named: picture
    """


def install(directory, source, monkeypatch):
    """Write the plugin to `directory` and put it on the path of engines started until the test ends."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "planted_fault.py").write_text(textwrap.dedent(source))
    info = directory / "planted_fault-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted-fault\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nplanted_fault = planted_fault:register\n")
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
