-- The shop of the demo: home goods, twelve customers, thirty orders. Money is in cents of a euro.
-- `python -m gesta.demo.build` makes shop.db of this file.

CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    city TEXT NOT NULL,
    since TEXT NOT NULL
);

CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    price_cents INTEGER NOT NULL
);

CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    placed_on TEXT NOT NULL,
    delivered_on TEXT,
    status TEXT NOT NULL CHECK (status IN ('placed', 'shipped', 'delivered', 'cancelled', 'refunded')),
    refunded_cents INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE order_lines (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL,
    price_cents INTEGER NOT NULL
);

CREATE TABLE payments (
    id INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL REFERENCES orders (id),
    amount_cents INTEGER NOT NULL,
    method TEXT NOT NULL,
    paid_on TEXT NOT NULL
);

-- No unique key: nothing in this shop would stop a refund from being booked twice.
CREATE TABLE refunds (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    order_id INTEGER NOT NULL REFERENCES orders (id),
    amount_cents INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at TEXT NOT NULL
);

INSERT INTO customers (id, name, email, city, since) VALUES
    (1, 'Marta Duarte', 'marta.duarte@example.com', 'Porto', '2023-03-14'),
    (2, 'Marek Nowak', 'marek.nowak@example.org', 'Gdynia', '2023-05-02'),
    (3, 'Aoife Byrne', 'aoife.byrne@example.net', 'Galway', '2023-08-21'),
    (4, 'Tomasz Lis', 't.lis@example.com', 'Lublin', '2023-11-09'),
    (5, 'Salma Haddad', 'salma.haddad@example.org', 'Lyon', '2024-01-17'),
    (6, 'Jonas Weber', 'jonas.weber@example.com', 'Bremen', '2024-02-28'),
    (7, 'Giulia Conti', 'giulia.conti@example.net', 'Bologna', '2024-04-05'),
    (8, 'Pieter Maas', 'p.maas@example.org', 'Utrecht', '2024-06-19'),
    (9, 'Anna Virtanen', 'anna.virtanen@example.com', 'Turku', '2024-09-30'),
    (10, 'Nikos Pappas', 'nikos.pappas@example.net', 'Patras', '2024-12-11'),
    (11, 'Clara Jensen', 'clara.jensen@example.org', 'Aarhus', '2025-02-07'),
    (12, 'Luca Moreau', 'luca.moreau@example.com', 'Ghent', '2025-03-23');

INSERT INTO products (id, name, price_cents) VALUES
    (1, 'Brass reading lamp', 6490),
    (2, 'Linen lampshade, 30 cm', 2450),
    (3, 'Oak bedside table', 11900),
    (4, 'Wool throw, grey', 5400),
    (5, 'Stoneware mug, set of four', 3200),
    (6, 'Beeswax candles, six', 1450),
    (7, 'Cast iron kettle', 7250),
    (8, 'Wall hook, pair', 1150),
    (9, 'Walnut serving board', 3875),
    (10, 'LED bulb, warm white', 795);

INSERT INTO orders (id, customer_id, placed_on, delivered_on, status, refunded_cents) VALUES
    (1001, 1, '2025-04-04', '2025-04-07', 'delivered', 0),
    (1002, 5, '2025-04-05', '2025-04-08', 'delivered', 0),
    (1003, 2, '2025-04-06', '2025-04-11', 'delivered', 0),
    (1004, 8, '2025-04-11', '2025-04-16', 'delivered', 0),
    (1005, 3, '2025-04-14', '2025-04-18', 'delivered', 0),
    (1006, 6, '2025-04-19', '2025-04-23', 'delivered', 0),
    (1007, 11, '2025-04-24', '2025-04-27', 'delivered', 0),
    (1008, 4, '2025-04-27', '2025-05-01', 'delivered', 0),
    (1009, 9, '2025-04-28', NULL, 'cancelled', 0),
    (1010, 7, '2025-05-03', '2025-05-06', 'delivered', 0),
    (1011, 12, '2025-05-05', '2025-05-09', 'delivered', 0),
    (1012, 1, '2025-05-06', '2025-05-11', 'delivered', 0),
    (1013, 10, '2025-05-09', '2025-05-14', 'delivered', 0),
    (1014, 2, '2025-05-10', '2025-05-14', 'delivered', 0),
    (1015, 6, '2025-05-13', '2025-05-18', 'delivered', 0),
    (1016, 3, '2025-05-15', NULL, 'cancelled', 0),
    (1017, 1, '2025-05-21', '2025-05-24', 'delivered', 0),
    (1018, 8, '2025-05-25', '2025-05-29', 'delivered', 0),
    (1019, 5, '2025-05-31', '2025-06-04', 'delivered', 0),
    (1020, 4, '2025-06-02', '2025-06-05', 'delivered', 0),
    (1021, 12, '2025-06-06', '2025-06-11', 'delivered', 0),
    (1022, 9, '2025-06-07', '2025-06-10', 'delivered', 0),
    (1023, 7, '2025-06-13', '2025-06-18', 'delivered', 0),
    (1024, 11, '2025-06-14', '2025-06-18', 'delivered', 0),
    (1025, 2, '2025-06-18', NULL, 'shipped', 0),
    (1026, 10, '2025-06-23', NULL, 'shipped', 0),
    (1027, 6, '2025-06-28', NULL, 'shipped', 0),
    (1028, 3, '2025-07-01', NULL, 'placed', 0),
    (1029, 8, '2025-07-04', NULL, 'placed', 0),
    (1030, 5, '2025-07-08', NULL, 'placed', 0);

INSERT INTO order_lines (order_id, product_id, quantity, price_cents) VALUES
    (1001, 7, 2, 7250),
    (1002, 9, 2, 3875),
    (1003, 4, 1, 5400),
    (1004, 1, 1, 6490),
    (1004, 4, 1, 5400),
    (1005, 9, 1, 3875),
    (1006, 3, 1, 11900),
    (1006, 2, 1, 2450),
    (1006, 4, 1, 5400),
    (1007, 4, 1, 5400),
    (1007, 8, 2, 1150),
    (1007, 7, 2, 7250),
    (1008, 3, 1, 11900),
    (1009, 5, 1, 3200),
    (1009, 9, 2, 3875),
    (1009, 8, 1, 1150),
    (1010, 9, 2, 3875),
    (1011, 8, 2, 1150),
    (1012, 9, 1, 3875),
    (1013, 10, 2, 795),
    (1013, 8, 1, 1150),
    (1014, 2, 1, 2450),
    (1014, 1, 2, 6490),
    (1015, 6, 2, 1450),
    (1015, 1, 1, 6490),
    (1016, 2, 1, 2450),
    (1016, 8, 1, 1150),
    (1016, 1, 1, 6490),
    (1017, 1, 1, 6490),
    (1017, 10, 2, 795),
    (1018, 5, 1, 3200),
    (1018, 3, 2, 11900),
    (1018, 7, 1, 7250),
    (1019, 3, 1, 11900),
    (1020, 4, 1, 5400),
    (1021, 5, 1, 3200),
    (1022, 9, 1, 3875),
    (1022, 6, 1, 1450),
    (1023, 1, 2, 6490),
    (1023, 8, 2, 1150),
    (1023, 7, 2, 7250),
    (1024, 1, 1, 6490),
    (1024, 4, 1, 5400),
    (1025, 2, 1, 2450),
    (1026, 2, 1, 2450),
    (1027, 9, 1, 3875),
    (1028, 1, 2, 6490),
    (1028, 2, 1, 2450),
    (1028, 4, 1, 5400),
    (1029, 6, 1, 1450),
    (1029, 8, 2, 1150),
    (1029, 2, 2, 2450),
    (1030, 5, 1, 3200),
    (1030, 2, 1, 2450);

INSERT INTO payments (id, order_id, amount_cents, method, paid_on) VALUES
    (1, 1001, 14500, 'card ending 4417', '2025-04-04'),
    (2, 1002, 7750, 'card ending 7751', '2025-04-05'),
    (3, 1003, 5400, 'card ending 0932', '2025-04-06'),
    (4, 1004, 11890, 'card ending 6648', '2025-04-11'),
    (5, 1005, 3875, 'card ending 2206', '2025-04-14'),
    (6, 1006, 19750, 'bank transfer', '2025-04-19'),
    (7, 1007, 22200, 'card ending 5190', '2025-04-24'),
    (8, 1008, 11900, 'PayPal', '2025-04-27'),
    (9, 1010, 7750, 'card ending 1305', '2025-05-03'),
    (10, 1011, 2300, 'card ending 8027', '2025-05-05'),
    (11, 1012, 3875, 'card ending 4417', '2025-05-06'),
    (12, 1013, 2740, 'PayPal', '2025-05-09'),
    (13, 1014, 15430, 'card ending 0932', '2025-05-10'),
    (14, 1015, 9390, 'bank transfer', '2025-05-13'),
    (15, 1017, 8080, 'card ending 4417', '2025-05-21'),
    (16, 1018, 34250, 'card ending 6648', '2025-05-25'),
    (17, 1019, 11900, 'card ending 7751', '2025-05-31'),
    (18, 1020, 5400, 'PayPal', '2025-06-02'),
    (19, 1021, 3200, 'card ending 8027', '2025-06-06'),
    (20, 1022, 5325, 'bank transfer', '2025-06-07'),
    (21, 1023, 29780, 'card ending 1305', '2025-06-13'),
    (22, 1024, 11890, 'card ending 5190', '2025-06-14'),
    (23, 1025, 2450, 'card ending 0932', '2025-06-18'),
    (24, 1026, 2450, 'PayPal', '2025-06-23'),
    (25, 1027, 3875, 'bank transfer', '2025-06-28'),
    (26, 1028, 20830, 'card ending 2206', '2025-07-01'),
    (27, 1029, 8650, 'card ending 6648', '2025-07-04'),
    (28, 1030, 5650, 'card ending 7751', '2025-07-08');
