"""Judging answers: cases and recorded runs, metrics, comparison, the stages, bisection, the report.

`numbers`, `fields`, `metrics`, `requirements`, `comparison`, `report` are plain arithmetic on recorded files;
`reference` and `worker` run where a model runs and are the only files here that import torch.
"""
