"""Indexes for data skipping of tables and folders: opened by the policy, and updated after runs."""
