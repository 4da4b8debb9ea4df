// Run by mongosh as the health check of mongo: makes a replica set of this one member, and fails
// until it is the primary.
try {
  rs.status();
} catch (err) {
  if (err.codeName !== 'NotYetInitialized') throw err;
  rs.initiate({ _id: 'rs0', members: [{ _id: 0, host: 'mongo:27017' }] });
}
if (!db.hello().isWritablePrimary) quit(1);
