-- literal, int
9007199254740993

-- literal, negative int
(-5)

-- literal, decimal
BIGNUMERIC '-100'

-- literal, fraction
BIGNUMERIC '0.10'

-- literal, date
DATE '0001-02-03'

-- literal, instant
TIMESTAMP '2026-11-15 08:12:00.000001+00:00'

-- literal, wall time
DATETIME '2026-11-15 08:12:00.000001'

-- literal, string
'it\'s; --'

-- literal, backslash
'a\\\'b'

-- first window of a table
SELECT * FROM `Sales`.`Orders` WHERE `Updated_At` <= TIMESTAMP '2026-11-16 08:12:00.000001+00:00'

-- window of a table
SELECT * FROM `Sales`.`Orders` WHERE `Updated_At` >= TIMESTAMP '2026-11-15 07:57:00.000001+00:00' AND `Updated_At` <= TIMESTAMP '2026-11-16 08:12:00.000001+00:00'

-- probe of a table
SELECT (SELECT MAX(`Updated_At`) FROM `Sales`.`Orders`) AS newest, (SELECT COUNT(*) FROM `Sales`.`Orders` WHERE `Updated_At` IS NULL) AS nulls

-- window with NULLs
SELECT * FROM `orders` WHERE (`updated_at` >= TIMESTAMP '2026-11-15 08:12:00.000001+00:00' AND `updated_at` <= TIMESTAMP '2026-11-16 08:12:00.000001+00:00' OR `updated_at` IS NULL)

-- probe below a ceiling
SELECT (SELECT MAX(`updated_at`) FROM `orders` WHERE `updated_at` <= TIMESTAMP '2026-11-16 08:12:00.000001+00:00') AS newest, (SELECT COUNT(*) FROM `orders` WHERE `updated_at` IS NULL) AS nulls

-- window of a query
SELECT * FROM (
SELECT o.* FROM orders o WHERE updated_at > TIMESTAMP '2026-11-15 08:12:00.000001+00:00' -- not :window_end

) AS floodmark_source WHERE `updated_at` >= TIMESTAMP '2026-11-15 08:12:00.000001+00:00' AND `updated_at` <= TIMESTAMP '2026-11-16 08:12:00.000001+00:00'

-- first window by its own query
SELECT * FROM (
SELECT * FROM orders
) AS floodmark_source WHERE `updated_at` <= TIMESTAMP '2026-11-16 08:12:00.000001+00:00'

-- window of strings
SELECT * FROM `orders` WHERE `code` >= 'a' AND `code` <= 'b'

-- window of numbers
SELECT * FROM `orders` WHERE `id` >= (-5) AND `id` <= 20

-- every row of a table
SELECT * FROM `Sales`.`Orders`

-- every row of a query
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source

-- no row
SELECT * FROM (
SELECT * FROM orders -- all

) AS floodmark_source WHERE 1 = 0

-- how far the values of a column go
SELECT MIN(`Order_Id`) AS lowest, MAX(`Order_Id`) AS highest FROM (
SELECT * FROM `Sales`.`Orders`
) AS floodmark_parts

-- part 1 of a read
SELECT * FROM orders WHERE (`Order_Id` < 3 OR `Order_Id` IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE `Order_Id` >= 3 AND `Order_Id` < 7

-- part 3 of a read
SELECT * FROM orders WHERE `Order_Id` >= 7

-- part 1 of a read
SELECT * FROM orders WHERE (`Order_Id` < TIMESTAMP '2026-11-15 16:12:00.000001+00:00' OR `Order_Id` IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE `Order_Id` >= TIMESTAMP '2026-11-15 16:12:00.000001+00:00' AND `Order_Id` < TIMESTAMP '2026-11-16 00:12:00.000001+00:00'

-- part 3 of a read
SELECT * FROM orders WHERE `Order_Id` >= TIMESTAMP '2026-11-16 00:12:00.000001+00:00'

-- part 1 of a read
SELECT * FROM orders WHERE (`Order_Id` < BIGNUMERIC '1.0' OR `Order_Id` IS NULL)

-- part 2 of a read
SELECT * FROM orders WHERE `Order_Id` >= BIGNUMERIC '1.0' AND `Order_Id` < BIGNUMERIC '1.5'

-- part 3 of a read
SELECT * FROM orders WHERE `Order_Id` >= BIGNUMERIC '1.5'

