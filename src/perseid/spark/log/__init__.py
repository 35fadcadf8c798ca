"""Store folders as tables, with no broker running: `spark.read.format("perseid-log")`.

    folders (which segments there are) → walk (where records stand) → rows (what they say) → source (Spark)
"""
