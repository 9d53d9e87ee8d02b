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
TIMESTAMP '2026-11-15 08:12:00.000001+00:00'

-- literal, wall time
TIMESTAMP '2026-11-15 08:12:00.000001'

-- literal, string
'it''s; --'

-- literal, backslash
CONVERT(X'615c2762' USING utf8mb4)

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
SELECT * FROM `orders` WHERE `code` COLLATE utf8mb4_bin >= 'a' AND `code` COLLATE utf8mb4_bin <= 'b'

-- window of numbers
SELECT * FROM `orders` WHERE `id` >= (-5) AND `id` <= 20

