"""The public names of auditor.extensions.integrations, which users' programs import."""
