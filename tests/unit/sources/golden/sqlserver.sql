-- literal, int
9007199254740993

-- literal, negative int
(-5)

-- literal, decimal
(-100)

-- literal, fraction
0.10

-- literal, date
CAST('0001-02-03' AS date)

-- literal, instant
CAST('2026-11-15T08:12:00.000001+00:00' AS datetimeoffset(6))

-- literal, wall time
CAST('2026-11-15T08:12:00.000001' AS datetime2(6))

-- literal, string
N'it''s; --'

-- literal, backslash
N'a\''b'

-- first window of a table
SELECT * FROM [Sales].[Orders] WHERE [Updated_At] <= CAST('2026-11-16T08:12:00.000001+00:00' AS datetimeoffset(6))

-- window of a table
SELECT * FROM [Sales].[Orders] WHERE [Updated_At] >= CAST('2026-11-15T07:57:00.000001+00:00' AS datetimeoffset(6)) AND [Updated_At] <= CAST('2026-11-16T08:12:00.000001+00:00' AS datetimeoffset(6))

-- probe of a table
SELECT (SELECT MAX([Updated_At]) FROM [Sales].[Orders]) AS newest, (SELECT COUNT(*) FROM [Sales].[Orders] WHERE [Updated_At] IS NULL) AS nulls

-- window with NULLs
SELECT * FROM [orders] WHERE ([updated_at] >= CAST('2026-11-15T08:12:00.000001+00:00' AS datetimeoffset(6)) AND [updated_at] <= CAST('2026-11-16T08:12:00.000001+00:00' AS datetimeoffset(6)) OR [updated_at] IS NULL)

-- probe below a ceiling
SELECT (SELECT MAX([updated_at]) FROM [orders] WHERE [updated_at] <= CAST('2026-11-16T08:12:00.000001+00:00' AS datetimeoffset(6))) AS newest, (SELECT COUNT(*) FROM [orders] WHERE [updated_at] IS NULL) AS nulls

-- window of a query
SELECT * FROM (
SELECT o.* FROM orders o WHERE updated_at > CAST('2026-11-15T08:12:00.000001+00:00' AS datetimeoffset(6)) -- not :window_end

) AS floodmark_source WHERE [updated_at] >= CAST('2026-11-15T08:12:00.000001+00:00' AS datetimeoffset(6)) AND [updated_at] <= CAST('2026-11-16T08:12:00.000001+00:00' AS datetimeoffset(6))

-- first window by its own query
SELECT * FROM (
SELECT * FROM orders
) AS floodmark_source WHERE [updated_at] <= CAST('2026-11-16T08:12:00.000001+00:00' AS datetimeoffset(6))

-- window of strings
SELECT * FROM [orders] WHERE [code] COLLATE Latin1_General_100_BIN2 >= N'a' AND [code] COLLATE Latin1_General_100_BIN2 <= N'b'

-- window of numbers
SELECT * FROM [orders] WHERE [id] >= (-5) AND [id] <= 20

