"""What was judged, said: orders in words, decisions numbered and dated, and the record of where the switch stands."""
