"""The places where adaptations may reach into our model and its frameworks. Each accepts changes in its phase only."""
