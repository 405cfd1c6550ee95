"""Sentences that lesson 39 reads: written for this page, in four languages, about things that the manual speaks of too.

None is from the manual. A sentence holds a word if its English version has it, as in the stored runs.
"""

from course_lib.language.corpus import Sentence

LANGUAGES = ("en_XX", "de_DE", "fr_XX", "es_XX")
_ROWS = """
Write the total into the last cell of the second column.
Schreiben Sie die Summe in die letzte Zelle der zweiten Spalte.
Écrivez le total dans la dernière cellule de la deuxième colonne.
Escriba el total en la última celda de la segunda columna.

An empty cell counts as zero.
Eine leere Zelle zählt als null.
Une cellule vide compte comme zéro.
Una celda vacía cuenta como cero.

Every cell keeps its own color.
Jede Zelle behält ihre eigene Farbe.
Chaque cellule garde sa propre couleur.
Cada celda conserva su propio color.

A red cell shows that the sum is wrong.
Eine rote Zelle zeigt, dass die Summe falsch ist.
Une cellule rouge montre que la somme est fausse.
Una celda roja muestra que la suma es incorrecta.

The teacher sends the file to all pupils.
Die Lehrerin sendet die Datei an alle Schüler.
L'enseignante envoie le fichier à tous les élèves.
La profesora envía el archivo a todos los alumnos.

Copy the file before you rename it.
Kopieren Sie die Datei, bevor Sie sie umbenennen.
Copiez le fichier avant de le renommer.
Copie el archivo antes de cambiarle el nombre.

The old file was too large for a letter.
Die alte Datei war zu groß für einen Brief.
L'ancien fichier était trop grand pour une lettre.
El archivo antiguo era demasiado grande para una carta.

Nobody knows who deleted the file.
Niemand weiß, wer die Datei gelöscht hat.
Personne ne sait qui a supprimé le fichier.
Nadie sabe quién eliminó el archivo.

Begin each paragraph with a short sentence.
Beginnen Sie jeden Absatz mit einem kurzen Satz.
Commencez chaque paragraphe par une phrase courte.
Empiece cada párrafo con una frase corta.

The third paragraph explains the rules of the game.
Der dritte Absatz erklärt die Regeln des Spiels.
Le troisième paragraphe explique les règles du jeu.
El tercer párrafo explica las reglas del juego.

I would leave out this paragraph.
Ich würde diesen Absatz weglassen.
Je supprimerais ce paragraphe.
Yo omitiría este párrafo.

A long paragraph tires the reader.
Ein langer Absatz ermüdet den Leser.
Un long paragraphe fatigue le lecteur.
Un párrafo largo cansa al lector.

A small icon marks the new messages.
Ein kleines Symbol kennzeichnet die neuen Nachrichten.
Une petite icône signale les nouveaux messages.
Un pequeño icono marca los mensajes nuevos.

The icon looks like a pair of scissors.
Das Symbol sieht aus wie eine Schere.
L'icône ressemble à une paire de ciseaux.
El icono parece unas tijeras.

Click the icon twice and wait.
Klicken Sie zweimal auf das Symbol und warten Sie.
Cliquez deux fois sur l'icône et attendez.
Haga clic dos veces en el icono y espere.

My grandmother did not find the icon.
Meine Großmutter hat das Symbol nicht gefunden.
Ma grand-mère n'a pas trouvé l'icône.
Mi abuela no encontró el icono.

Choose the language of your country.
Wählen Sie die Sprache Ihres Landes.
Choisissez la langue de votre pays.
Elija el idioma de su país.

The program guesses the language of the letter.
Das Programm errät die Sprache des Briefs.
Le programme devine la langue de la lettre.
El programa adivina el idioma de la carta.

In which language was this book written?
In welcher Sprache wurde dieses Buch geschrieben?
Dans quelle langue ce livre a-t-il été écrit ?
¿En qué idioma se escribió este libro?

No other language has such a word.
Keine andere Sprache hat so ein Wort.
Aucune autre langue n'a un tel mot.
Ningún otro idioma tiene una palabra así.

The window is too small for the whole picture.
Das Fenster ist zu klein für das ganze Bild.
La fenêtre est trop petite pour toute l'image.
La ventana es demasiado pequeña para toda la imagen.

Close the window when you are done.
Schließen Sie das Fenster, wenn Sie fertig sind.
Fermez la fenêtre lorsque vous avez terminé.
Cierre la ventana cuando haya terminado.

Two people can work in one window.
Zwei Personen können in einem Fenster arbeiten.
Deux personnes peuvent travailler dans une fenêtre.
Dos personas pueden trabajar en una ventana.

The cat sleeps at the open window.
Die Katze schläft am offenen Fenster.
Le chat dort à la fenêtre ouverte.
El gato duerme junto a la ventana abierta.

Write your answer on the dotted line.
Schreiben Sie Ihre Antwort auf die gepunktete Linie.
Écrivez votre réponse sur la ligne pointillée.
Escriba su respuesta en la línea de puntos.

A thick line divides the drawing.
Eine dicke Linie teilt die Zeichnung.
Une ligne épaisse divise le dessin.
Una línea gruesa divide el dibujo.

The poem has eight words in each line.
Das Gedicht hat acht Wörter in jeder Zeile.
Le poème a huit mots dans chaque ligne.
El poema tiene ocho palabras en cada línea.

A dotted line shows where to cut.
Eine gepunktete Linie zeigt, wo man schneiden soll.
Une ligne pointillée montre où couper.
Una línea de puntos muestra dónde cortar.

Draw a border around the picture.
Zeichnen Sie einen Rahmen um das Bild.
Dessinez une bordure autour de l'image.
Dibuje un borde alrededor de la imagen.

The border is blue and thin.
Der Rahmen ist blau und dünn.
La bordure est bleue et fine.
El borde es azul y fino.

Without a border the table looks lighter.
Ohne Rahmen wirkt die Tabelle leichter.
Sans bordure, le tableau paraît plus léger.
Sin borde, la tabla parece más ligera.

A double border frames the title.
Ein doppelter Rahmen umgibt den Titel.
Une bordure double encadre le titre.
Un borde doble enmarca el título.
"""


def sentences() -> list[Sentence]:
    """The sentences, row after row, each in four languages; those of a row have one `meaning`, its place."""
    rows = [block.splitlines() for block in _ROWS.strip().split("\n\n")]
    return [
        Sentence(text, code, frozenset(), number)
        for number, row in enumerate(rows)
        for code, text in zip(LANGUAGES, row, strict=True)
    ]
