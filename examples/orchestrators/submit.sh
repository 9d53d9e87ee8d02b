#!/bin/sh
# floodmark by spark-submit, in client mode: the exit code is that of job.py.
# submit.sh PROJECT [PIPELINE]...
set -eu
here=$(cd "$(dirname "$0")" && pwd)

# The jars of the lock, with their checksums; --packages would resolve some 300 modules.
jars=$(floodmark --json jars fetch | python3 -c '
import json, pathlib, sys
folder = pathlib.Path(json.load(sys.stdin)["folder"])
print(",".join(str(jar) for jar in sorted(folder.glob("*.jar"))))')

exec spark-submit \
  --master "${SPARK_MASTER:-local[*]}" \
  --deploy-mode client \
  --jars "$jars" \
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
  "$here/job.py" run "$@"
