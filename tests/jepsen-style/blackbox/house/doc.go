// Package house is the part of a run that no fault ever strikes: the accounts that transfers are made
// between, and the book in which every call, every answer and every change of the accounts is written
// down as it happens, with one clock.
//
// Workers reach it over a socket, with the standard library's net/rpc. To them the accounts are a
// participant.Resource like any other; behind it stands the reference resource of participanttest.
package house
