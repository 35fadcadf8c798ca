"""Was each acknowledged message read?"""

from pathlib import Path

acknowledged = set(Path("acknowledged.txt").read_text().split())
read = set(Path("read.txt").read_text().split())
missing = acknowledged - read
print(f"missing: {len(missing)} {sorted(missing)[:10] or ''}")
