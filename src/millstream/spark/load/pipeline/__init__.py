"""Records into rows: formats, checks, SQL, fused tasks and DataFrames."""
