"""The store's protocol under faults in virtual time, and the twins of what a run stands upon. Above the
worker and the operator, so that it may drive both; never shipped.
"""
