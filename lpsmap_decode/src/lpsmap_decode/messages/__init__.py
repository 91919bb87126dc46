"""The engine for networks of tables, by message passing."""
