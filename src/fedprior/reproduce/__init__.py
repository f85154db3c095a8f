"""The paper's theorems, tables and figures, reproduced on this library."""
