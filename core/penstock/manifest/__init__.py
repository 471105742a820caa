"""What every manifest model stands on: the base of models and their scalar types, faults in words, the form
of OpenAPI. `penstock.api` has the models, `penstock.connectors` those of sources and sinks.
"""
