"""What a drill's runs show: did the trainer survive the fault that was planted? No torch here."""
