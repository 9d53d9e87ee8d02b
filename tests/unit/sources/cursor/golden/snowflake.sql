-- literal, int
9007199254740993

-- literal, negative int
(-5)

-- literal, decimal
(-100)

-- literal, fraction
0.10

-- literal, date
DATE '0001-02-03'

-- literal, instant
CAST('2026-11-15 08:12:00.000001 +00:00' AS TIMESTAMP_TZ)

-- literal, wall time
CAST('2026-11-15 08:12:00.000001' AS TIMESTAMP_NTZ)

-- literal, string
'it''s; --'

-- literal, backslash
'a\\''b'

-- first window of a table
SELECT * FROM "SALES"."ORDERS" WHERE "UPDATED_AT" < CAST('2026-11-16 08:12:00.000002 +00:00' AS TIMESTAMP_TZ)

-- window of a table
SELECT * FROM "SALES"."ORDERS" WHERE "UPDATED_AT" >= CAST('2026-11-15 07:57:00.000001 +00:00' AS TIMESTAMP_TZ) AND "UPDATED_AT" < CAST('2026-11-16 08:12:00.000002 +00:00' AS TIMESTAMP_TZ)

-- probe of a table
SELECT (SELECT MAX("UPDATED_AT") FROM "SALES"."ORDERS") AS newest, (SELECT COUNT(*) FROM "SALES"."ORDERS" WHERE "UPDATED_AT" IS NULL) AS nulls

-- window with NULLs
SELECT * FROM "ORDERS" WHERE ("UPDATED_AT" >= CAST('2026-11-15 08:12:00.000001 +00:00' AS TIMESTAMP_TZ) AND "UPDATED_AT" < CAST('2026-11-16 08:12:00.000002 +00:00' AS TIMESTAMP_TZ) OR "UPDATED_AT" IS NULL)

-- probe below a ceiling
SELECT (SELECT MAX("UPDATED_AT") FROM "ORDERS" WHERE "UPDATED_AT" < CAST('2026-11-16 08:12:00.000002 +00:00' AS TIMESTAMP_TZ)) AS newest, (SELECT COUNT(*) FROM "ORDERS" WHERE "UPDATED_AT" IS NULL) AS nulls

-- window of a query
SELECT * FROM (
SELECT o.* FROM orders o WHERE updated_at > CAST('2026-11-15 08:12:00.000001 +00:00' AS TIMESTAMP_TZ) -- not :window_end

) AS floodmark_source WHERE "UPDATED_AT" >= CAST('2026-11-15 08:12:00.000001 +00:00' AS TIMESTAMP_TZ) AND "UPDATED_AT" < CAST('2026-11-16 08:12:00.000002 +00:00' AS TIMESTAMP_TZ)

-- first window by its own query
SELECT * FROM (
SELECT * FROM orders
) AS floodmark_source WHERE "UPDATED_AT" < CAST('2026-11-16 08:12:00.000002 +00:00' AS TIMESTAMP_TZ)

-- window of strings
SELECT * FROM "ORDERS" WHERE "CODE" >= 'a' AND "CODE" <= 'b'

-- window of numbers
SELECT * FROM "ORDERS" WHERE "ID" >= (-5) AND "ID" <= 20

-- every row of a table
SELECT * FROM "SALES"."ORDERS"

-- every row of a query
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source

-- no row
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source WHERE 1 = 0

-- how far the values of a column go
SELECT MIN("ORDER_ID") AS lowest, MAX("ORDER_ID") AS highest FROM (
SELECT * FROM "SALES"."ORDERS"
) AS floodmark_parts

-- part 1 of a read
SELECT * FROM orders WHERE ("ORDER_ID" < 3 OR "ORDER_ID" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 3 AND "ORDER_ID" < 7

-- part 3 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 7

-- part 1 of a read
SELECT * FROM orders WHERE ("ORDER_ID" < CAST('2026-11-15 16:12:00.000001 +00:00' AS TIMESTAMP_TZ) OR "ORDER_ID" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= CAST('2026-11-15 16:12:00.000001 +00:00' AS TIMESTAMP_TZ) AND "ORDER_ID" < CAST('2026-11-16 00:12:00.000001 +00:00' AS TIMESTAMP_TZ)

-- part 3 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= CAST('2026-11-16 00:12:00.000001 +00:00' AS TIMESTAMP_TZ)

-- part 1 of a read
SELECT * FROM orders WHERE ("ORDER_ID" < 1.0 OR "ORDER_ID" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 1.0 AND "ORDER_ID" < 1.5

-- part 3 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 1.5

