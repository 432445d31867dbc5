# Sourced by the launchers beside it: Python finds the packages, Spark finds itself and the cluster.
home=$(dirname "$(dirname "$(readlink -f "$0")")")
export SPARK_HOME="$home/site-packages/pyspark"
export PYTHONPATH="$home/site-packages${PYTHONPATH:+:$PYTHONPATH}"
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-python3}"
# CONF_DIR holds spark-defaults.conf and Hadoop's *-site.xml of the service that submits.
if [ -n "${CONF_DIR:-}" ]; then
    export SPARK_CONF_DIR="$CONF_DIR" HADOOP_CONF_DIR="$CONF_DIR" YARN_CONF_DIR="$CONF_DIR"
fi
