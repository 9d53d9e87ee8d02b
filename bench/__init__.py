"""Speed and memory of floodmark, as ratios within one run: `python3 go.py bench`."""
