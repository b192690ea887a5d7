"""Run the plan: the server process, its readiness and its end, and our HTTP routes inside it."""
