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
TIMESTAMP WITH TIME ZONE '2026-11-15 08:12:00.000001+00:00'

-- literal, wall time
TIMESTAMP '2026-11-15 08:12:00.000001'

-- literal, string
'it''s; --'

-- literal, backslash
E'a\\''b'

-- first window of a table
SELECT * FROM "sales"."orders" WHERE "updated_at" <= TIMESTAMP WITH TIME ZONE '2026-11-16 08:12:00.000001+00:00'

-- window of a table
SELECT * FROM "sales"."orders" WHERE "updated_at" >= TIMESTAMP WITH TIME ZONE '2026-11-15 07:57:00.000001+00:00' AND "updated_at" <= TIMESTAMP WITH TIME ZONE '2026-11-16 08:12:00.000001+00:00'

-- probe of a table
SELECT (SELECT MAX("updated_at") FROM "sales"."orders") AS newest, (SELECT COUNT(*) FROM "sales"."orders" WHERE "updated_at" IS NULL) AS nulls

-- window with NULLs
SELECT * FROM "orders" WHERE ("updated_at" >= TIMESTAMP WITH TIME ZONE '2026-11-15 08:12:00.000001+00:00' AND "updated_at" <= TIMESTAMP WITH TIME ZONE '2026-11-16 08:12:00.000001+00:00' OR "updated_at" IS NULL)

-- probe below a ceiling
SELECT (SELECT MAX("updated_at") FROM "orders" WHERE "updated_at" <= TIMESTAMP WITH TIME ZONE '2026-11-16 08:12:00.000001+00:00') AS newest, (SELECT COUNT(*) FROM "orders" WHERE "updated_at" IS NULL) AS nulls

-- window of a query
SELECT * FROM (
SELECT o.* FROM orders o WHERE updated_at > TIMESTAMP WITH TIME ZONE '2026-11-15 08:12:00.000001+00:00' -- not :window_end

) AS floodmark_source WHERE "updated_at" >= TIMESTAMP WITH TIME ZONE '2026-11-15 08:12:00.000001+00:00' AND "updated_at" <= TIMESTAMP WITH TIME ZONE '2026-11-16 08:12:00.000001+00:00'

-- first window by its own query
SELECT * FROM (
SELECT * FROM orders
) AS floodmark_source WHERE "updated_at" <= TIMESTAMP WITH TIME ZONE '2026-11-16 08:12:00.000001+00:00'

-- window of strings
SELECT * FROM "orders" WHERE "code" COLLATE "C" >= 'a' AND "code" COLLATE "C" <= 'b'

-- window of numbers
SELECT * FROM "orders" WHERE "id" >= (-5) AND "id" <= 20

-- every row of a table
SELECT * FROM "sales"."orders"

-- every row of a query
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source

-- no row
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source WHERE 1 = 0

-- how far the values of a column go
SELECT MIN("order_id") AS lowest, MAX("order_id") AS highest FROM (
SELECT * FROM "sales"."orders"
) AS floodmark_parts

-- part 1 of a read
SELECT * FROM orders WHERE ("order_id" < 3 OR "order_id" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "order_id" >= 3 AND "order_id" < 7

-- part 3 of a read
SELECT * FROM orders WHERE "order_id" >= 7

-- part 1 of a read
SELECT * FROM orders WHERE ("order_id" < TIMESTAMP WITH TIME ZONE '2026-11-15 16:12:00.000001+00:00' OR "order_id" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "order_id" >= TIMESTAMP WITH TIME ZONE '2026-11-15 16:12:00.000001+00:00' AND "order_id" < TIMESTAMP WITH TIME ZONE '2026-11-16 00:12:00.000001+00:00'

-- part 3 of a read
SELECT * FROM orders WHERE "order_id" >= TIMESTAMP WITH TIME ZONE '2026-11-16 00:12:00.000001+00:00'

-- part 1 of a read
SELECT * FROM orders WHERE ("order_id" < 1.0 OR "order_id" IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE "order_id" >= 1.0 AND "order_id" < 1.5

-- part 3 of a read
SELECT * FROM orders WHERE "order_id" >= 1.5

