-- The table of orders-all.yaml. It has no unique index on purpose: a row that came twice would be there twice, and
-- `unisink verify` would say so. With a primary key over customer and window_start, `write: upsert` suits as well.
CREATE TABLE order_totals (
  customer     text        NOT NULL,
  window_start timestamptz NOT NULL,
  window_end   timestamptz NOT NULL,
  count        bigint      NOT NULL,
  sum_cents    bigint      NOT NULL,
  generation   bigint      NOT NULL,  -- the epoch that wrote the row, by which readers can take a cut
  epoch        bigint      NOT NULL
);
CREATE INDEX ON order_totals (window_start, customer);
