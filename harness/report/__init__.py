"""What a judgement looks like: text for the terminal, JSON for machines. No judging happens here."""
