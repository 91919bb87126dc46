"""The engine of networks of tables: messages bound them, and mostly an answer meets the bound."""
