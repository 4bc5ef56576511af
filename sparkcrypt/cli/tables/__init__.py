"""Commands for tables and folders: tags, plan, encrypting, verifying, audit, access and lineage."""
