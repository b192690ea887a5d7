"""What a checkpoint's files are, from headers alone, and getting them here."""

from ascend_vl.checkpoint.defects import Defect
from ascend_vl.checkpoint.inspection import Checkpoint, inspect_checkpoint
from ascend_vl.checkpoint.shapes import TextShape, VisionShape

__all__ = ["Checkpoint", "Defect", "TextShape", "VisionShape", "inspect_checkpoint"]
