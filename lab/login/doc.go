// Package login compares how clients log in to MongoDB: Mooring's driver, the official one and
// pymongo. It has tests only.
package login
