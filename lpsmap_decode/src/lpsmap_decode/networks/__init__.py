"""Networks of tables: messages, elimination, cycles, moves."""
