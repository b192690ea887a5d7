"""Numbers of drawing for Prometheus, in the registry that vLLM's /metrics shows."""

from prometheus_client import Counter, Gauge, Histogram

PREFIX = "ascend_vl_drawing"
SECONDS = (0.1, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
SLICE_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

FINISHED = Counter(PREFIX, "Drawings by outcome", ["outcome"])
DURATION = Histogram(f"{PREFIX}_seconds", "From begin to picture, of drawings that finished", buckets=SECONDS)
SLICES = Histogram(f"{PREFIX}_slice_seconds", "Time of one slice in the first worker", buckets=SLICE_SECONDS)
STEPS = Counter(f"{PREFIX}_steps", "Denoising steps done")
ACTIVE = Gauge(f"{PREFIX}_active", "Drawings under way", multiprocess_mode="livesum")
WORKSPACE = Gauge(f"{PREFIX}_workspace_bytes", "Device memory that drawing may use, a worker", multiprocess_mode="max")
WAITING = Gauge(f"{PREFIX}_waiting", "Drawings in the queue", multiprocess_mode="livesum")
