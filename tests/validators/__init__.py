"""Validators written from what providers publish, without a look at the code that they judge."""
