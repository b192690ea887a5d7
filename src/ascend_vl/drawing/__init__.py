"""HiDream-O1 pictures: what is drawn, in which steps, by whom, and how it is asked for.

`recipes sizes layout references sequence job pixels budget label trace` need numpy and Pillow only; `noise schedulers
velocity` need torch; `reference` needs Transformers; `forward attention head ranks session workspace worker` run inside
vLLM's workers; `lane request service routes metrics` run in its API server; `client` talks to one.
"""
