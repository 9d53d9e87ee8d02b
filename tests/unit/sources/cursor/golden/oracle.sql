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
TIMESTAMP '2026-11-15 08:12:00.000001 +00:00'

-- literal, wall time
TIMESTAMP '2026-11-15 08:12:00.000001'

-- literal, string
'it''s; --'

-- literal, backslash
'a\''b'

-- first window of a table
SELECT * FROM "SALES"."ORDERS" WHERE "UPDATED_AT" < TIMESTAMP '2026-11-16 08:12:00.000002 +00:00'

-- window of a table
SELECT * FROM "SALES"."ORDERS" WHERE "UPDATED_AT" >= TIMESTAMP '2026-11-15 07:57:00.000001 +00:00' AND "UPDATED_AT" < TIMESTAMP '2026-11-16 08:12:00.000002 +00:00'

-- probe of a table
SELECT (SELECT MAX("UPDATED_AT") FROM "SALES"."ORDERS") AS newest, (SELECT COUNT(*) FROM "SALES"."ORDERS" WHERE "UPDATED_AT" IS NULL) AS nulls FROM DUAL

-- window with NULLs
SELECT * FROM "ORDERS" WHERE ("UPDATED_AT" >= TIMESTAMP '2026-11-15 08:12:00.000001 +00:00' AND "UPDATED_AT" < TIMESTAMP '2026-11-16 08:12:00.000002 +00:00' OR "UPDATED_AT" IS NULL)

-- probe below a ceiling
SELECT (SELECT MAX("UPDATED_AT") FROM "ORDERS" WHERE "UPDATED_AT" < TIMESTAMP '2026-11-16 08:12:00.000002 +00:00') AS newest, (SELECT COUNT(*) FROM "ORDERS" WHERE "UPDATED_AT" IS NULL) AS nulls FROM DUAL

-- window of a query
SELECT * FROM (
SELECT o.* FROM orders o WHERE updated_at > TIMESTAMP '2026-11-15 08:12:00.000001 +00:00' -- not :window_end

) floodmark_source WHERE "UPDATED_AT" >= TIMESTAMP '2026-11-15 08:12:00.000001 +00:00' AND "UPDATED_AT" < TIMESTAMP '2026-11-16 08:12:00.000002 +00:00'

-- first window by its own query
SELECT * FROM (
SELECT * FROM orders
) floodmark_source WHERE "UPDATED_AT" < TIMESTAMP '2026-11-16 08:12:00.000002 +00:00'

-- window of strings
SELECT * FROM "ORDERS" WHERE "CODE" >= 'a' AND "CODE" <= 'b'

-- window of numbers
SELECT * FROM "ORDERS" WHERE "ID" >= (-5) AND "ID" <= 20

-- every row of a table
SELECT * FROM "SALES"."ORDERS"

-- every row of a query
SELECT * FROM (
SELECT * FROM orders -- all

) floodmark_source

-- no row
SELECT * FROM (
SELECT * FROM orders -- all

) floodmark_source WHERE 1 = 0

-- how far the values of a column go
SELECT MIN("ORDER_ID") AS lowest, MAX("ORDER_ID") AS highest FROM (
SELECT * FROM "SALES"."ORDERS"
) floodmark_parts

-- part 1 of a read
SELECT * FROM orders WHERE ("ORDER_ID" < 3 OR "ORDER_ID" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 3 AND "ORDER_ID" < 7

-- part 3 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 7

-- part 1 of a read
SELECT * FROM orders WHERE ("ORDER_ID" < TIMESTAMP '2026-11-15 16:12:00.000001 +00:00' OR "ORDER_ID" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= TIMESTAMP '2026-11-15 16:12:00.000001 +00:00' AND "ORDER_ID" < TIMESTAMP '2026-11-16 00:12:00.000001 +00:00'

-- part 3 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= TIMESTAMP '2026-11-16 00:12:00.000001 +00:00'

-- part 1 of a read
SELECT * FROM orders WHERE ("ORDER_ID" < 1.0 OR "ORDER_ID" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 1.0 AND "ORDER_ID" < 1.5

-- part 3 of a read
SELECT * FROM orders WHERE "ORDER_ID" >= 1.5

