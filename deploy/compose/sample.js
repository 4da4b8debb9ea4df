// Run by mongosh: fills shop.orders, if it is empty.
const customers = ['Ada', 'Grace', 'Edsger', 'Barbara', 'Niklaus'];
const statuses = ['open', 'paid', 'shipped', 'returned'];
const skus = ['rope-20m', 'fender-l', 'cleat-s', 'anchor-15kg', 'buoy-red'];
const placed = new Date('2026-11-01T09:00:00Z').getTime();

if (db.orders.countDocuments({}, { limit: 1 }) === 0) {
  db.orders.insertMany(
    Array.from({ length: 250 }, (_, i) => ({
      _id: i + 1,
      customer: customers[i % 5],
      status: statuses[(i * 7) % 4],
      placed: new Date(placed + i * 3_600_000),
      total: ((i * 7919) % 50_000) / 100,
      items: [{ sku: skus[(i * 3) % 5], quantity: 1 + (i % 5) }],
    })),
  );
}
