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
SELECT * FROM [Sales].[Orders] WHERE [Updated_At] < CAST('2026-11-16T08:12:00.000002+00:00' AS datetimeoffset(6))

-- window of a table
SELECT * FROM [Sales].[Orders] WHERE [Updated_At] >= CAST('2026-11-15T07:57:00.000001+00:00' AS datetimeoffset(6)) AND [Updated_At] < CAST('2026-11-16T08:12:00.000002+00:00' AS datetimeoffset(6))

-- probe of a table
SELECT (SELECT MAX([Updated_At]) FROM [Sales].[Orders]) AS newest, (SELECT COUNT(*) FROM [Sales].[Orders] WHERE [Updated_At] IS NULL) AS nulls

-- window with NULLs
SELECT * FROM [orders] WHERE ([updated_at] >= CAST('2026-11-15T08:12:00.000001+00:00' AS datetimeoffset(6)) AND [updated_at] < CAST('2026-11-16T08:12:00.000002+00:00' AS datetimeoffset(6)) OR [updated_at] IS NULL)

-- probe below a ceiling
SELECT (SELECT MAX([updated_at]) FROM [orders] WHERE [updated_at] < CAST('2026-11-16T08:12:00.000002+00:00' AS datetimeoffset(6))) AS newest, (SELECT COUNT(*) FROM [orders] WHERE [updated_at] IS NULL) AS nulls

-- window of a query
SELECT * FROM (
SELECT o.* FROM orders o WHERE updated_at > CAST('2026-11-15T08:12:00.000001+00:00' AS datetimeoffset(6)) -- not :window_end

) AS floodmark_source WHERE [updated_at] >= CAST('2026-11-15T08:12:00.000001+00:00' AS datetimeoffset(6)) AND [updated_at] < CAST('2026-11-16T08:12:00.000002+00:00' AS datetimeoffset(6))

-- first window by its own query
SELECT * FROM (
SELECT * FROM orders
) AS floodmark_source WHERE [updated_at] < CAST('2026-11-16T08:12:00.000002+00:00' AS datetimeoffset(6))

-- window of strings
SELECT * FROM [orders] WHERE [code] COLLATE Latin1_General_100_BIN2 >= N'a' AND [code] COLLATE Latin1_General_100_BIN2 <= N'b'

-- window of numbers
SELECT * FROM [orders] WHERE [id] >= (-5) AND [id] <= 20

-- every row of a table
SELECT * FROM [Sales].[Orders]

-- every row of a query
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source

-- no row
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source WHERE 1 = 0

-- how far the values of a column go
SELECT MIN([Order_Id]) AS lowest, MAX([Order_Id]) AS highest FROM (
SELECT * FROM [Sales].[Orders]
) AS floodmark_parts

-- part 1 of a read
SELECT * FROM orders WHERE ([Order_Id] < 3 OR [Order_Id] IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE [Order_Id] >= 3 AND [Order_Id] < 7

-- part 3 of a read
SELECT * FROM orders WHERE [Order_Id] >= 7

-- part 1 of a read
SELECT * FROM orders WHERE ([Order_Id] < CAST('2026-11-15T16:12:00.000001+00:00' AS datetimeoffset(6)) OR [Order_Id] IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE [Order_Id] >= CAST('2026-11-15T16:12:00.000001+00:00' AS datetimeoffset(6)) AND [Order_Id] < CAST('2026-11-16T00:12:00.000001+00:00' AS datetimeoffset(6))

-- part 3 of a read
SELECT * FROM orders WHERE [Order_Id] >= CAST('2026-11-16T00:12:00.000001+00:00' AS datetimeoffset(6))

-- part 1 of a read
SELECT * FROM orders WHERE ([Order_Id] < 1.0 OR [Order_Id] IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE [Order_Id] >= 1.0 AND [Order_Id] < 1.5

-- part 3 of a read
SELECT * FROM orders WHERE [Order_Id] >= 1.5

