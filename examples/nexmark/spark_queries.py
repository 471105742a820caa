"""NEXMark's queries as Spark SQL in batch, by which topologies are judged.

They read the views `person`, `auction` and `bid`, which have the columns of the source `nexmark`. They ask
what the benchmark asks, in the form that Flink's suite has given it: windows of 10 s, which slide by 2 s in
query 5.
"""

from __future__ import annotations

from collections.abc import Mapping

QUERIES: Mapping[str, str] = {
    # Currency conversion: every bid in euros.
    "q1": """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra
        FROM bid
    """,
    # Selection: bids on every 123rd auction.
    "q2": """
        SELECT auction, price FROM bid WHERE auction % 123 = 0
    """,
    # Average price for a category: of the highest bids while each auction was open.
    "q4": """
        SELECT category, AVG(final) AS final
        FROM (
            SELECT auction.id, category, MAX(price) AS final
            FROM auction JOIN bid ON auction.id = bid.auction
            WHERE bid.dateTime BETWEEN auction.dateTime AND expires
            GROUP BY auction.id, category
        )
        GROUP BY category
    """,
    # Hot items: the auctions with most bids in each 10 s, every 2 s.
    "q5": """
        SELECT starttime, endtime, auction, num
        FROM (
            SELECT *, MAX(num) OVER (PARTITION BY starttime) AS most
            FROM (
                SELECT window.start AS starttime, window.end AS endtime, auction, COUNT(*) AS num
                FROM bid
                GROUP BY window(dateTime, '10 seconds', '2 seconds'), auction
            )
        )
        WHERE num = most
    """,
    # Highest bid of each 10 s.
    "q7": """
        SELECT auction, bidder, price, dateTime, extra
        FROM bid JOIN (
            SELECT window.start AS starttime, window.end AS endtime, MAX(price) AS highest
            FROM bid
            GROUP BY window(dateTime, '10 seconds')
        )
        ON price = highest AND dateTime >= starttime AND dateTime < endtime
    """,
    # New users: persons who came and began an auction within the same 10 s.
    "q8": """
        SELECT id, name, came.starttime
        FROM (
            SELECT id, name, window.start AS starttime
            FROM person
            GROUP BY id, name, window(dateTime, '10 seconds')
        ) came
        JOIN (
            SELECT seller, window.start AS starttime
            FROM auction
            GROUP BY seller, window(dateTime, '10 seconds')
        ) sold
        ON id = seller AND came.starttime = sold.starttime
    """,
    # Sessions: how many bids somebody made until there were none for 10 s.
    "q11": """
        SELECT bidder, COUNT(*) AS bid_count, session_window.start AS starttime, session_window.end AS endtime
        FROM bid
        GROUP BY bidder, session_window(dateTime, '10 seconds')
    """,
}
