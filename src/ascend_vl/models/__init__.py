"""Our vLLM model classes and worker methods. Only `names` may be imported where no engine runs."""
