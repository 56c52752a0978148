"""Workers and pipelines that tests drive."""
